"""What the outputs of tests and checks prove. Pure: bytes and texts in, numbers out."""
