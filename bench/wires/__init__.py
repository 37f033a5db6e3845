"""The protocols the peers speak, each as little as the load driver needs of it."""
