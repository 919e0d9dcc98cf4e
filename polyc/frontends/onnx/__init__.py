"""ONNX graphs to Programs: the one place, beside `polyc.onnx`, that imports the onnx package."""
