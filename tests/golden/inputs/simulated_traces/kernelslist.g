MemcpyHtoD,0x00007f0000000000,64
MemcpyHtoD,0x00007f0000000000,128
kernel-1.traceg
kernel-2.traceg
kernel-3.traceg
kernel-4.traceg
