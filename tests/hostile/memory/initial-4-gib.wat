;; attack: Declares 65,536 pages.
;; expect: load -> structure
;; memory: 65536
