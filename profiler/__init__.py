"""Record and read: hooks and readers fill one timeline. Imports nothing of ours above it."""
