;; attack: Speaks version 0.2.0 of the contract.
;; expect: load -> version
;; version: 0.2.0
