"""Transfer of values between processes: frames on a socket, with several calls in progress.

A connection carries messages both ways. A message is a call or a reply, with a head and values.
Small values are in the head. Large ones follow in chunks, which are interleaved with other
messages, so that no message waits for a large value. All numbers are little-endian.

    frame    u8 kind, u8 of a reply (0 or 1), u16 zero, u32 bytes of payload, u64 call
    kinds    1 head, 2 data, 3 cancel, 4 ping, 5 pong; with the number of a block as that of the
             call: 6 block, whose file comes along, 7 release, 8 forget
    head     u16 code, u16 number of values, u32 bytes of meta, meta, a description of each value,
             the bytes of those that are inline
    value    u8 DataType, u8 rank, u8 flags, u8 zero, u32 zero, u64 bytes, i64 for each size
    flags    1 dead: there is no value; 2 in the head; 4 in the block whose number, a u64, follows

The code of a call is a method; the code of a reply is 0 or an error code. The caller assigns the
number of the call.
The bytes of a string tensor are u64 offsets, one more than there are elements, followed by the
texts.

Between processes of one machine the connection is a socket that carries open files as well, and
large values are copied into blocks of memory that both ends have mapped (`memory.py`). The sender
creates blocks and passes their descriptors. The receiver returns a block when its value is no
longer used. If there is no room for more blocks, values are sent on the socket, so nothing ever
waits for a block. `same_machine.py` detects processes on the same machine. Servers of one process
need no socket (`inproc.py`).
"""
