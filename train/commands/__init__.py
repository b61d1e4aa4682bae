"""The commands of `python -m train`. None of these modules imports TensorFlow before it is
needed.
"""
