;; attack: Speaks version 0.1.1 of the contract.
;; expect: load -> version
;; version: 0.1.1
