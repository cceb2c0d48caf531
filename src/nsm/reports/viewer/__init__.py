"""The execution viewer: one HTML file with everything in it, that asks nothing of the network."""

from nsm.reports.viewer.page import Page, page

__all__ = ["Page", "page"]
