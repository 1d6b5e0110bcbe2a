"""Makes `.weftlite` files of graphs: needs the extra `convert` of weftml-lite."""
