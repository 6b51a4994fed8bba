"""The page of `keyrange report`: documents of the commands in, figures and HTML out.

Rule of this package: no table, no broker, no clock. Figures are plain data in plotly's form; a
colour in them is the name of a CSS variable, so that the page can follow light and dark.
"""
