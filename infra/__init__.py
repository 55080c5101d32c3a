"""The Pulumi components of a cluster on Azure, and the program that composes them.

This is the only folder that imports Pulumi.
"""
