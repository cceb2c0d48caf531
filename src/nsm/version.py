"""What `nsm --version` says, and every run's config."""

__version__ = "0.2.0"
