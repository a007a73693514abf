"""Where items go: SFTP, FTP or a folder behind one interface."""
