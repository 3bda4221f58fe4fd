"""A client of Juju's API made for tens of thousands of connections, and the hollow units that log in over them."""
