"""Trained weights out: as safetensors, as a folder of timm's, as ONNX, and in the layout of the released DnA code."""
