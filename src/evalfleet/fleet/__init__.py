"""The life of pools: machines are made, proved ready, watched, stopped and deleted, as the store's wishes say."""
