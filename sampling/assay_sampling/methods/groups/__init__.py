"""Groups by kernel and size, judged on launches held out, and the launches that stand for a group."""
