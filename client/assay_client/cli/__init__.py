"""The command ``assay``: a file per verb in ``verbs``, listed in ``verb_list``; ``main`` catches errors."""
