"""The same of operators of images, and of volumes and sequences as images."""
