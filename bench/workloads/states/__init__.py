"""Workloads of states beside their pages: who shares what, and an image beside other brokers'."""
