"""A Hugging Face model in this process."""
