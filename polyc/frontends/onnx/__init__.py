"""ONNX models as Programs: the only room, beside `polyc.onnx`, that knows the package onnx."""
