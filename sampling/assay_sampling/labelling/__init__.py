"""Groups for launches that were seen only lightly: encoding, classifiers, their vote."""
