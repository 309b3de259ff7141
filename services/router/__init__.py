"""One OpenAI-compatible address in front of every ready replica."""
