"""Values between processes: frames on a socket, several calls at a time.

A connection carries messages both ways. A message is a call or a reply, with a head and values.
Small values are in the head; large ones follow in chunks between which chunks of other messages may
stand, so nothing waits for a large value to pass. All numbers are little-endian.

    frame    u8 kind, u8 of a reply (0 or 1), u16 zero, u32 bytes of payload, u64 call
    kinds    1 head, 2 data, 3 cancel, 4 ping, 5 pong
    head     u16 code, u16 number of values, u32 bytes of meta, meta, a description of each value,
             the bytes of those that are inline
    value    u8 DataType, u8 rank, u8 flags, u8 zero, u32 zero, u64 bytes, i64 for each size
    flags    1 dead: there is no value; 2 in the head

The code of a call is a method, that of a reply 0 or an error's. Who calls numbers the call.
The bytes of strings are u64 offsets, one more than there are elements, then the texts.
"""
