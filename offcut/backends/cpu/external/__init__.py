"""Functions from elsewhere as microkernels: how one is declared, and how it is compared with its declaration."""
