"""The API of an OpenStack: Keystone, Nova, Neutron and Glance."""
