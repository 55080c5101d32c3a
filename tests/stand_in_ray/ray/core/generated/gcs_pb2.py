class GcsNodeInfo:
    ALIVE = 1
