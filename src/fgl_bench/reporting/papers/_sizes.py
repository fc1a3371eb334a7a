"""Nodes and undirected edges of data sets: the cost of one that was never run is guessed from them."""

SIZES = {
    "cora": (2708, 5429),
    "citeseer": (3327, 4732),
    "pubmed": (19717, 44338),
    "photo": (7650, 119081),
    "computers": (13752, 245861),
    "cs": (18333, 81894),
    "physics": (34493, 247962),
    "flickr": (89250, 449878),
    "reddit": (232965, 57307946),
    "yelp": (716847, 6977410),
    "ogbn_arxiv": (169343, 1157799),
    "ogbn_products": (2449029, 61859140),
    "roman_empire": (22662, 32927),
    "amazon_ratings": (24492, 93050),
    "minesweeper": (10000, 39402),
    "tolokers": (11758, 519000),
    "questions": (48921, 153540),
}
