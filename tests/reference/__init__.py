"""The plain per-client loop that the batched engine is checked and timed against.

One PyTorch Geometric model and one ``torch.optim.Adam`` per client, trained one after the other. Written from the
published algorithms alone and sharing nothing with the engine, so that an agreement of the two means something.
"""
