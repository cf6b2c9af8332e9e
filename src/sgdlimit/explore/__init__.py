"""`sgdlimit explore`: a local page on which curves follow the sliders. Needs `pip install "sgdlimit[explore]"`.

The server never imports jax: it checks fields and writes texts (`fields`, `view`), and hands work to processes
of its own (`pool`) that can be ended at any time. What they compute is in `work`.
"""
