"""The execution viewer: one self-contained HTML file, which loads nothing from the network."""

from nsm.reports.viewer.page import Page, page

__all__ = ["Page", "page"]
