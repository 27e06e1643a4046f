;; attack: Speaks version 99.99.99 of the contract.
;; expect: load -> version
;; version: 99.99.99
