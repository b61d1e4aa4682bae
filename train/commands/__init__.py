"""The commands of `namsa-train`. None of these modules imports TensorFlow before it is
needed.
"""
