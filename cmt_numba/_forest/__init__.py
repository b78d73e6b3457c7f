"""The engine: a forest of trees over one store of memories."""
