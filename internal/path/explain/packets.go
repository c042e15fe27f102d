package explain

// Packets is what a capture shows of a connection and its sockets do not.
type Packets struct{}
