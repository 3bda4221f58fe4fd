"""OpenStack: servers in projects, and a client of Keystone, Nova, Neutron and Glance."""
