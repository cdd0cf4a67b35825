"""How clients reach the server: over its standard streams, or over HTTP."""
