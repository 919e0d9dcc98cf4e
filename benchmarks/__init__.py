"""Speed of polyc against its peers: every side in its own process, alternating rounds, one report.

``python -m benchmarks softmax dot --threads 1,2 --peers numpy,torch``; see docs/benchmarks.md.
"""
