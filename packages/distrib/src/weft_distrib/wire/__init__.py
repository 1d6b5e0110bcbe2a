"""Values between processes: frames on a socket, several calls at a time.

A connection carries messages both ways. A message is a call or a reply, with a head and values.
Small values are in the head; large ones follow in chunks between which chunks of other messages may
stand, so nothing waits for a large value to pass. All numbers are little-endian.

    frame    u8 kind, u8 of a reply (0 or 1), u16 zero, u32 bytes of payload, u64 call
    kinds    1 head, 2 data, 3 cancel, 4 ping, 5 pong; with the number of a block as that of the
             call: 6 block, whose file comes along, 7 release, 8 forget
    head     u16 code, u16 number of values, u32 bytes of meta, meta, a description of each value,
             the bytes of those that are inline
    value    u8 DataType, u8 rank, u8 flags, u8 zero, u32 zero, u64 bytes, i64 for each size
    flags    1 dead: there is no value; 2 in the head; 4 in the block whose number, a u64, follows

The code of a call is a method, that of a reply 0 or an error's. Who calls numbers the call.
The bytes of strings are u64 offsets, one more than there are elements, then the texts.

Between processes of one machine the connection is a socket that carries open files as well, and
large values are copied into blocks of memory that both ends have mapped (`memory.py`). Whoever
sends makes blocks and hands them over, and gets each back when nobody has the value any more that
was in it. Where there is no room for more blocks, values follow on the socket, so nobody ever waits
for a block. `local.py` says how two processes find out that they are on one machine. Servers of one
process need no socket at all (`inproc.py`).
"""
