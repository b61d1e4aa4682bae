"""The phases of the job in the order in which `train.main` calls them, one module each (`share`
obtains samples).
"""
