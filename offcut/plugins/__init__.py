"""offcut inside other frameworks and compilers: a folder for each host."""
