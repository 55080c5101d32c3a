"""Azure as the tests meet it: servers and engines that answer as its pages and users report."""
