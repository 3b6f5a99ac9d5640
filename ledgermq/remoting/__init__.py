"""RocketMQ's remoting protocol, as bytes in and bytes out; it owns no socket and no clock.

A server of it is a loop around one ``FrameSplitter`` for each connection:

    splitter = FrameSplitter()
    while data := connection.recv(65_536):
        for frame in splitter.feed(data):
            request = decode_command(frame)
            if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
                reply = request.reply(body=routes[request.fields["topic"]])
            else:
                reply = request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
            if not request.is_oneway:
                for part in encode_command(reply):
                    connection.sendall(part)

A ``ProtocolError`` of either function ends the connection: what follows cannot be trusted. The body
of a request is a view of its frame. A client is the same loop the other way round: it sends
``encode_command(Command(code, opaque))``, and knows the reply by its ``opaque``.

Begin with ``command.py`` and ``codes.py``; then each kind of request has its module, as
``send_request.py`` and ``pull_request.py``. It may import ``formats`` and ``model``. ``gateway`` is
the port that serves it.
"""
