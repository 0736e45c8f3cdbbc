"""What to deploy: every defense at the strength that is enough, trained, and the most accurate of them attacked."""
