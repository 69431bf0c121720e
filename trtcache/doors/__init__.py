"""What can be asked of a model besides compiling it: the other functions of ``trtcache``, a file for each noun."""
