"""What happens to files: bytes flipped, lost, added, moved or zeroed."""

HOW = ("flip", "garble", "zero", "leave out", "insert", "repeat", "swap")


def damaged(whole, how, chance):
    """The bytes of a file, changed in one place."""
    start = chance.randrange(len(whole))
    stop = min(len(whole), start + chance.choice([1, 1, 2, 20, 300]))
    part = whole[start:stop]
    if how == "flip":
        return whole[:start] + bytes([whole[start] ^ (1 << chance.randrange(8))]) + whole[start + 1 :]
    if how == "garble":
        return whole[:start] + chance.randbytes(len(part)) + whole[stop:]
    if how == "zero":
        return whole[:start] + bytes(len(part)) + whole[stop:]
    if how == "leave out":
        return whole[:start] + whole[stop:]
    if how == "insert":
        return whole[:start] + chance.randbytes(len(part)) + whole[start:]
    if how == "repeat":
        return whole[:stop] + part + whole[stop:]
    return whole[:start] + whole[stop : stop + len(part)] + part + whole[stop + len(part) :]  # swapped
