"""The folder that a recorded child gets on PYTHONPATH; it holds nothing but `sitecustomize`."""
