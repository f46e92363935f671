"""What is made of the elements along axes: sums and extremes, softmax, statistics, and each of them up to each element."""
