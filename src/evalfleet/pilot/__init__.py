"""The program on a node that cannot be called: it holds a runner and exchanges messages through a box.

It goes to nodes as one file. It needs Python 3.8 and the package `cryptography`, and nothing else.
"""
